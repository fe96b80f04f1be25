-- Names that say what the columns hold.
ALTER TABLE dialoq.queue_message RENAME COLUMN stored TO delivery_class;
ALTER TABLE dialoq.retained_message RENAME COLUMN stored TO delivery_class;
-- 10 minus the level, so that the index ascends from the highest level.
ALTER TABLE dialoq.ready_group RENAME COLUMN below_top TO rank_from_top;
-- Endpoints that tick examines again when the transactions of that moment are over.
ALTER TABLE dialoq.unsettled RENAME COLUMN unsettled_id TO recheck_id;
ALTER TABLE dialoq.unsettled RENAME TO recheck_queue;
