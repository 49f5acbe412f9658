-- Two roles for leasehold on PostgreSQL. Run this in the database of the locks, as the owner of the tables that
-- `leasehold schema` prints.
-- Give each a password (\password leasehold), or let pg_hba.conf say who they are.

-- Locks: reads and writes the rows of locks, and nothing else. Whoever may lock may also break locks.
CREATE ROLE leasehold LOGIN;
GRANT SELECT ON leasehold_meta TO leasehold;
GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_lock, leasehold_claim TO leasehold;

-- Lists and shows, and nothing else.
CREATE ROLE leasehold_viewer LOGIN;
GRANT SELECT ON leasehold_meta, leasehold_lock, leasehold_claim TO leasehold_viewer;
