-- While a session holds an old snapshot, the server removes no dead row (decision 0043).

-- Rows of ready_group belong to generations. Searches read from the lowest generation that may have a live row, so the dead rows of
-- the generations before it cost nothing.
ALTER TABLE dialoq.ready_group ADD COLUMN generation bigint NOT NULL DEFAULT 0;
ALTER TABLE dialoq.ready_group ALTER COLUMN generation DROP DEFAULT;
DROP INDEX dialoq.ready_group_rank;
CREATE INDEX ready_group_rank ON dialoq.ready_group (generation, queue_id, rank_from_top, oldest);
DROP INDEX dialoq.ready_group_group;
CREATE INDEX ready_group_group ON dialoq.ready_group (conversation_group_id, generation);

-- The row with the highest turn counts. floor: no generation below it has a live row. latest: the generation of new rows, floor or
-- the one above it. If it is the one above, the rows of floor are on their way to it, once every transaction below after_xid is over.
CREATE TABLE dialoq.ready_generation (
    turn bigint PRIMARY KEY,
    floor bigint NOT NULL,
    latest bigint NOT NULL CHECK (latest BETWEEN floor AND floor + 1),
    after_xid xid8,
    -- Rows moved in this turn or the one before, and the time before which no new one begins.
    moved bigint NOT NULL,
    next_at timestamptz NOT NULL,
    -- The last tick that did more than a step of a turn.
    ticked_at timestamptz NOT NULL
);
INSERT INTO dialoq.ready_generation (turn, floor, latest, moved, next_at, ticked_at) VALUES (0, 0, 0, 0, '-infinity', '-infinity');
