-- The ids of units that have happened, so that a caller that lost its answer can try again: kept for a week.

CREATE TABLE dialoq_done_unit (
    unit_id BLOB PRIMARY KEY,
    done_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
