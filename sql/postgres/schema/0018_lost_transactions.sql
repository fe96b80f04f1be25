-- The groups that lost transactions had received from which this rollback counts; NULL for a transaction that its reader rolled back.
ALTER TABLE dialoq.queue_rollback ADD COLUMN lost_groups uuid[];

-- Its reader has rolled it back, and it could not be counted at once.
ALTER TABLE dialoq.receive_attempt ADD COLUMN is_rolled_back boolean NOT NULL DEFAULT false;
