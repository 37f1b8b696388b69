-- One row for each effect. Times are seconds since 1970 by this server's clock.
CREATE TABLE effectonce.effects (
  key               text COLLATE "C" PRIMARY KEY,
  fingerprint       text COLLATE "C" NOT NULL,
  terms             text NOT NULL,
  tenant            text COLLATE "C" NOT NULL,
  scope             text NOT NULL,
  step              text NOT NULL,
  arguments         bytea NOT NULL,
  latch             text COLLATE "C" NOT NULL,
  after             text COLLATE "C" NOT NULL,
  created_at        float8 NOT NULL,
  tool              text NOT NULL,
  window_s          float8 NOT NULL,  -- repeats what the terms say: a completion reads it here
  state             text COLLATE "C" NOT NULL,
  epoch             int8 NOT NULL,
  token             text COLLATE "C" NOT NULL,
  lease_until       float8 NOT NULL,
  sends             int8 NOT NULL,
  dtoken            text COLLATE "C" NOT NULL,
  first_dispatch_at float8 NOT NULL,
  sent_until        float8 NOT NULL,
  outcome           bytea NOT NULL DEFAULT '',
  decided_at        float8 NOT NULL DEFAULT 0,
  dedup_until       float8 NOT NULL DEFAULT 'infinity',
  settled_by        text NOT NULL DEFAULT '',
  reason            text NOT NULL DEFAULT '',
  evidence          text NOT NULL DEFAULT '',
  due_at            float8 NOT NULL,  -- when a sweep has something to do here
  -- Every write makes a new one. It starts anywhere: a record that was forgotten and born again must not look like the one before.
  revision          int8 NOT NULL DEFAULT 1 + floor(random() * 9e15)
);

-- At most one effect of a latch is in the air. The server itself decides between two claims that come at the same time.
CREATE UNIQUE INDEX effects_in_the_air ON effectonce.effects (latch)
 WHERE latch <> '' AND (state IN ('dispatched', 'in_doubt') OR (state = 'claimed' AND sends > 0));

-- What the sweeper looks for. What is in doubt is never due, however much of it there is.
CREATE INDEX effects_due ON effectonce.effects (due_at) WHERE due_at < 'infinity';
