-- Small values that processes share: budgets, a breaker's votes. Nobody's arguments or results.
CREATE TABLE effectonce.cells (
  name      text COLLATE "C" PRIMARY KEY,
  value     bytea NOT NULL,
  -- As with effects: it starts anywhere, so that a cell that was forgotten and written again does not look like the one before.
  revision  int8 NOT NULL DEFAULT 1 + floor(random() * 9e15),
  forget_at float8 NOT NULL
) WITH (fillfactor = 50);  -- a few rows that are written again and again: a new version finds room beside the old one
CREATE INDEX cells_forget_at ON effectonce.cells (forget_at);
-- Roles that may write effects must go on working without a word to their owner; who may use the schema is his to say.
GRANT SELECT, INSERT, UPDATE, DELETE ON effectonce.cells TO PUBLIC;
