-- While a session holds an old snapshot, the server removes no dead row (decision 0043).

-- Batches read the latest row of ready_generation anyway.
ALTER TABLE dialoq.ready_generation
    -- Batches read the system's messages and the transmission queue for each of their endpoints at once, and not first whether
    -- there is any: the answer would walk over many dead rows (rules/endpoint.sql, watch_dead_rows).
    ADD COLUMN asks_each boolean NOT NULL DEFAULT false,
    -- When that is looked at next.
    ADD COLUMN asks_next_at timestamptz NOT NULL DEFAULT '-infinity',
    -- No row of recheck_queue has a lower id, or may get one: the dead ones there cost nothing. In a turn of the generations, the
    -- highest id that was given out when it began.
    ADD COLUMN recheck_from bigint NOT NULL DEFAULT 0,
    ADD COLUMN recheck_to bigint NOT NULL DEFAULT 0;
