-- Takes the missing keys of names for which this process waits: the key of the waiters, and the key of the poller.
SELECT coalesce(array_agg(announced OR pg_try_advisory_lock_shared(waiters)), '{}'),
    coalesce(array_agg(polls OR pg_try_advisory_lock(poller)), '{}')
FROM unnest($1::int8[], $2::bool[], $3::int8[], $4::bool[]) AS watch (waiters, announced, poller, polls)
