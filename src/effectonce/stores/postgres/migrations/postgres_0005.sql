-- What people page through, by age. Rows in a state that an ordinary call never has, or leaves, stand in indexes of their own.
CREATE INDEX effects_rare ON effectonce.effects (state, created_at, key) WHERE state IN ('claimed', 'failed', 'in_doubt', 'tombstone');
CREATE INDEX effects_rare_of ON effectonce.effects (tenant, state, created_at, key)
 WHERE state IN ('claimed', 'failed', 'in_doubt', 'tombstone');
CREATE INDEX effects_named ON effectonce.effects (right(key, 12)) WHERE state IN ('claimed', 'failed', 'in_doubt', 'tombstone');
DROP INDEX effectonce.effects_in_doubt;  -- effects_rare has them
-- A call that is sent leaves the index of the sweeper for one by age: as many entries as before. What is completed is in one more.
CREATE INDEX effects_sent ON effectonce.effects (created_at) WHERE state = 'dispatched';
CREATE INDEX effects_completed ON effectonce.effects (created_at) WHERE state = 'completed';
DROP INDEX effectonce.effects_due;
CREATE INDEX effects_due ON effectonce.effects (due_at) WHERE state <> 'dispatched' AND due_at < 'infinity';
