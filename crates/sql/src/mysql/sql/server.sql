-- Variables and status values of the server. MySQL and MariaDB each have only some of them.
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'server_id', 'server_uuid', 'read_only', 'innodb_read_only', 'wsrep_on',
    'group_replication_group_name', 'group_replication_single_primary_mode', 'idle_transaction_timeout', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'log_bin', 'sync_binlog',
    'innodb_flush_method', 'wsrep_provider_options', 'rpl_semi_sync_master_wait_point', 'rpl_semi_sync_source_wait_point');
SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'wsrep_cluster_state_uuid', 'wsrep_cluster_status', 'wsrep_ready', 'wsrep_cluster_size', 'Ndb_number_of_ready_data_nodes', 'Slaves_connected', 'Rpl_semi_sync_master_status',
    'Rpl_semi_sync_source_status', 'Rpl_semi_sync_master_clients', 'Rpl_semi_sync_source_clients')
