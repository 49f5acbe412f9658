-- All rights that a user of locks needs: replace `locker`@`%` by that user, and run this in the database with the
-- tables.
GRANT SELECT ON leasehold_meta TO `locker`@`%`;
GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_lock TO `locker`@`%`;
GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_claim TO `locker`@`%`;
GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_memo TO `locker`@`%`;
