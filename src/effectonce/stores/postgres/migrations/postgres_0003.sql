-- A transaction that is lent to a tool may only end together with its record. Each one passes a row through this table, and the trigger that
-- waits for its COMMIT lets it pass only if it was the lender who asked for it (`effectonce.lent` is 'ended', said in the same breath).
-- A COMMIT, COMMIT AND CHAIN or PREPARE TRANSACTION in the tool's own SQL fails, and everything is rolled back.
-- The row is deleted in the same COMMIT, so nobody ever sees one; what does not survive a crash need not be logged.
CREATE UNLOGGED TABLE effectonce.lent (transaction int8 PRIMARY KEY);
GRANT SELECT, INSERT, DELETE ON effectonce.lent TO PUBLIC;  -- nothing is ever in it; who may use the schema is the owner's to say

CREATE FUNCTION effectonce.not_the_tools_to_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  CASE pg_catalog.current_setting('effectonce.lent', true)
    WHEN 'ended' THEN
      RETURN NULL;
    WHEN 'looking' THEN
      PERFORM pg_catalog.set_config('effectonce.lent', 'immediate', true);
      RETURN NULL;
    ELSE
      NULL;
  END CASE;
  -- A tool may say SET CONSTRAINTS ALL IMMEDIATE, which asks us too early. Then another row is looked at within its own statement.
  PERFORM pg_catalog.set_config('effectonce.lent', 'looking', true);
  INSERT INTO effectonce.lent VALUES (-pg_catalog.txid_current());
  IF pg_catalog.current_setting('effectonce.lent', true) OPERATOR(pg_catalog.=) 'looking' THEN
    RAISE EXCEPTION 'this transaction is not the tool''s to end: its record is written in the same COMMIT, after the tool returns'
      USING ERRCODE = 'invalid_transaction_termination', HINT = 'Take the COMMIT out of the tool.';
  END IF;
  DELETE FROM effectonce.lent WHERE transaction OPERATOR(pg_catalog.=) -pg_catalog.txid_current();
  SET CONSTRAINTS effectonce.not_the_tools_to_end DEFERRED;
  PERFORM pg_catalog.set_config('effectonce.lent', '1', true);
  INSERT INTO effectonce.lent VALUES (-pg_catalog.txid_current());
  DELETE FROM effectonce.lent WHERE transaction OPERATOR(pg_catalog.=) -pg_catalog.txid_current();
  RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER not_the_tools_to_end AFTER INSERT ON effectonce.lent
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION effectonce.not_the_tools_to_end();
