-- Writes the changes of a locked name, and notifies clients at the commit.
-- In:     name; its row, without a token if it is unchanged; claim rows; ids of claims to delete; channels; payloads.
WITH locked AS (
    UPDATE leasehold_lock SET token = $2, holder = $3, tokens = $4, previous = $5, owner = $6, since = $7, expires = $8, client = $9,
        claims = $10, ended = $11, ended_upto = $12, ended_until = $13
    WHERE name = $1 AND $2::bigint IS NOT NULL
), put AS (
    INSERT INTO leasehold_claim (name, id, stand, place, mode, count, most, token, tokens, previous, owner, since, expires, claim_time,
        place_since, place_expires, client)
    SELECT $1, a.* FROM unnest($14::bytea[], $15::smallint[], $16::bigint[], $17::smallint[], $18::bigint[], $19::bigint[],
        $20::bigint[], $21::integer[], $22::smallint[], $23::text[], $24::bigint[], $25::bigint[], $26::bigint[], $27::bigint[],
        $28::bigint[], $29::bigint[]) AS a
    ON CONFLICT (name, id) DO UPDATE SET stand = excluded.stand, place = excluded.place, mode = excluded.mode,
        count = excluded.count, most = excluded.most, token = excluded.token, tokens = excluded.tokens, previous = excluded.previous,
        owner = excluded.owner, since = excluded.since, expires = excluded.expires, claim_time = excluded.claim_time,
        place_since = excluded.place_since, place_expires = excluded.place_expires, client = excluded.client
), dropped AS (
    DELETE FROM leasehold_claim WHERE name = $1 AND id = ANY ($30)
)
SELECT pg_notify(a.channel, a.payload) FROM unnest($31::text[], $32::text[]) AS a (channel, payload)
