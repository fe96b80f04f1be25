-- Since when a queue is off, what turned it off ('statement' or 'poison'), and the reason that a statement gave.
ALTER TABLE dialoq.service_queue
    ADD COLUMN off_since timestamptz CHECK (off_since BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'),
    ADD COLUMN off_by text CHECK (off_by IN ('statement', 'poison')),
    ADD COLUMN off_reason text CHECK (length(off_reason) <= 1000);
