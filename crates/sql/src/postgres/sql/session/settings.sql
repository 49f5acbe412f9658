-- Sets those of these settings that the server has, for this session.
SELECT set_config(wanted.name, wanted.value, false) FROM unnest($1::text[], $2::text[]) AS wanted (name, value)
WHERE wanted.name LIKE 'leasehold.%' OR EXISTS (SELECT FROM pg_settings WHERE pg_settings.name = wanted.name)
