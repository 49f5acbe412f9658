-- Which server this is, since when its locks and its log exist, and for how long, in microseconds. After a crash the
-- end of the log can be lost. After a crash of one backend the server ends all sessions and goes on with the same start
-- time; it then resets all its statistics. A single reset by hand changes one of the two times only.
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()),
    (extract(epoch FROM start.at) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8,
    (extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) start.at) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8
FROM (SELECT greatest(pg_catalog.pg_postmaster_start_time(), least((SELECT stats_reset FROM pg_catalog.pg_stat_bgwriter),
    (SELECT stats_reset FROM pg_catalog.pg_stat_archiver))) AS at) AS start
