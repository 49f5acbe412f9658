-- The objects with the names of our tables, as far as this user may see them. A trigger is visible on MariaDB to
-- users who may write its table, on MySQL to users who may create triggers.
-- Out:    tables and their kinds; columns and their types; the columns of each unique key; triggers.
SELECT table_name, table_type, engine FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN ('leasehold_meta', 'leasehold_lock', 'leasehold_claim', 'leasehold_memo');
SELECT table_name, column_name, column_type, extra FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name IN ('leasehold_meta', 'leasehold_lock', 'leasehold_claim', 'leasehold_memo');
SELECT table_name, index_name, column_name, sub_part FROM information_schema.statistics
WHERE table_schema = DATABASE() AND table_name IN ('leasehold_meta', 'leasehold_lock', 'leasehold_claim', 'leasehold_memo') AND non_unique = 0
ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index;
SELECT event_object_table, trigger_name FROM information_schema.triggers
WHERE event_object_schema = DATABASE() AND event_object_table IN ('leasehold_meta', 'leasehold_lock', 'leasehold_claim', 'leasehold_memo')
