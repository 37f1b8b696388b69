-- What people page through: every state by age. Nothing else here has an order by age, so this is the one index that calls pay for a page:
-- two small entries at its end for each call.
CREATE INDEX effects_by_state ON effectonce.effects (state, created_at);
-- What people look for by its reference. An ordinary call is never in it.
CREATE INDEX effects_named ON effectonce.effects (right(key, 12)) WHERE state IN ('claimed', 'failed', 'in_doubt', 'tombstone');
