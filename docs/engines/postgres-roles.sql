-- Two roles for leasehold on PostgreSQL. Run this file in the database of the locks, as the owner of the tables that
-- the output of `leasehold schema` creates.
-- Then give each role a password (\password leasehold), or another way to log in by pg_hba.conf.

-- This role has the right to read and write the rows of locks, and no other right: it can lock, and break locks.
CREATE ROLE leasehold LOGIN;
GRANT SELECT ON leasehold_meta TO leasehold;
GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_lock, leasehold_claim, leasehold_memo TO leasehold;

-- This role has the right to list and show names, and no other right.
CREATE ROLE leasehold_viewer LOGIN;
GRANT SELECT ON leasehold_meta, leasehold_lock, leasehold_claim, leasehold_memo TO leasehold_viewer;
