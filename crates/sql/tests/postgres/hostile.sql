-- What a user can do who may only create objects in the schema `public`, as every user may on PostgreSQL 13 and 14 and
-- in databases from there: functions, operators and types that match better than those of the system.
CREATE ROLE mallory LOGIN;
GRANT CREATE, USAGE ON SCHEMA public TO mallory;
SET ROLE mallory;
-- So that mallory's own statements do not run the traps below.
SET search_path = pg_catalog;
CREATE TABLE public.executed (what pg_catalog.text);
GRANT ALL ON public.executed TO PUBLIC;
CREATE FUNCTION public.record_execution(what pg_catalog.text) RETURNS bool LANGUAGE sql AS
    $$INSERT INTO public.executed VALUES (what); SELECT true$$;
DO $$
DECLARE
    kinds text[] := '{int2,int4,int8,float8,numeric,text,varchar,bpchar,name,bytea,oid,regclass,bool,timestamptz,"\"char\""}';
    op text; l text; r text; made int := 0; answer text; f record;
BEGIN
    FOREACH op IN ARRAY '{=,<>,<,<=,>,>=,+,-,*,/,%,||,~~,&}'::text[] LOOP
        FOREACH l IN ARRAY kinds LOOP
            FOREACH r IN ARRAY kinds LOOP
                made := made + 1;
                answer := CASE WHEN op IN ('+', '-', '*', '/', '%', '&') THEN 'float8' WHEN op = '||' THEN 'text' ELSE 'bool' END;
                EXECUTE format('CREATE FUNCTION public.trap_%s(pg_catalog.%s, pg_catalog.%s) RETURNS pg_catalog.%s LANGUAGE plpgsql AS %L',
                    made, l, r, answer,
                    format('BEGIN PERFORM public.record_execution(%L); RETURN NULL; END', l || ' ' || op || ' ' || r));
                EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = pg_catalog.%s, RIGHTARG = pg_catalog.%s, FUNCTION = public.trap_%s)',
                    op, l, r, made);
            END LOOP;
        END LOOP;
    END LOOP;
    -- Traps for every function with one of these names, with exact argument types.
    FOR f IN
        SELECT DISTINCT p.proname AS name, array_to_string(ARRAY(
            SELECT CASE WHEN t.typname LIKE 'any%' THEN 'pg_catalog.int8' ELSE 'pg_catalog.' || quote_ident(t.typname) END
            FROM unnest(p.proargtypes) WITH ORDINALITY AS a (type, at) JOIN pg_type AS t ON t.oid = a.type ORDER BY a.at), ', ') AS given
        FROM pg_proc AS p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname IN (
            'date_part', 'clock_timestamp', 'now', 'unnest', 'pg_notify', 'starts_with', 'count', 'min', 'max', 'replace',
            'gen_random_uuid', 'current_setting', 'pg_control_system', 'pg_is_in_recovery', 'pg_walfile_name', 'pg_current_wal_lsn',
            'pg_advisory_xact_lock', 'to_regclass', 'concat', 'quote_ident', 'format_type', 'pg_has_role', 'current_schema',
            'current_database', 'array_length', 'set_config', 'left', 'octet_length')
          AND p.proargtypes::oid[] <@ ARRAY(SELECT oid FROM pg_type WHERE typname NOT LIKE 'internal')
          AND NOT 'internal'::regtype = ANY (p.proargtypes::oid[])
    LOOP
        EXECUTE format('CREATE OR REPLACE FUNCTION public.%I(%s) RETURNS pg_catalog.int8 LANGUAGE plpgsql AS %L',
            f.name, f.given, format('BEGIN PERFORM public.record_execution(%L); RETURN NULL; END', f.name || '(' || f.given || ')'));
    END LOOP;
    -- Exact matches where the function of the system takes any type.
    FOREACH l IN ARRAY '{text[],bytea[],int8[],int4[],int2[]}'::text[] LOOP
        EXECUTE format('CREATE FUNCTION public.unnest(pg_catalog.%s) RETURNS SETOF pg_catalog.text LANGUAGE plpgsql AS %L', l,
            format('BEGIN PERFORM public.record_execution(%L); RETURN; END', 'unnest ' || l));
    END LOOP;
    FOREACH l IN ARRAY kinds LOOP
        EXECUTE format('CREATE DOMAIN public.%s AS pg_catalog.%s CHECK (public.record_execution(%L))', l, l, 'type ' || l);
    END LOOP;
END $$;
RESET ROLE;
RESET search_path;
