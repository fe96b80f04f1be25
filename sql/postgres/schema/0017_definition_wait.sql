-- Until when no further transaction receives from a queue, because a definition waits for its conversations.
ALTER TABLE dialoq.service_queue
    ADD COLUMN receives_held_until timestamptz
        CHECK (receives_held_until BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00');
