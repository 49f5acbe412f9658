-- Writes claim rows of a locked name.
INSERT INTO leasehold_claim (name, id, stand, place, mode, count, most, token, tokens, previous, owner, since, expires, claim_time,
    place_since, place_expires, client) VALUES :rows
ON DUPLICATE KEY UPDATE stand = VALUES(stand), place = VALUES(place), mode = VALUES(mode), count = VALUES(count), most = VALUES(most),
    token = VALUES(token), tokens = VALUES(tokens), previous = VALUES(previous), owner = VALUES(owner), since = VALUES(since),
    expires = VALUES(expires), claim_time = VALUES(claim_time), place_since = VALUES(place_since),
    place_expires = VALUES(place_expires), client = VALUES(client)
