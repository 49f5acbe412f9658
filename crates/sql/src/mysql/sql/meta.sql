-- Which tables these are.
SELECT version, lineage FROM leasehold_meta WHERE one = 1
