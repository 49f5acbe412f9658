-- The identity of the tables.
SELECT version, lineage FROM leasehold_meta WHERE one = 1
