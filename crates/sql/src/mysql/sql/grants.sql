-- All that a user needs who locks: put the user in the place of `locker`@`%`, and run this in the database with the tables.
GRANT SELECT ON leasehold_meta TO `locker`@`%`;
GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_lock TO `locker`@`%`;
GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_claim TO `locker`@`%`;
