-- What people browse. An ordinary call is never in it and pays nothing for it.
CREATE INDEX effects_in_doubt ON effectonce.effects (created_at, key) WHERE state = 'in_doubt';
