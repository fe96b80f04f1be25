-- Makes the temporary tables that tell whether a row breaks a deferred foreign key.
-- Takes: nothing
-- Gives: nothing
CREATE TEMP TABLE dialoq_deferred_parent (
    name TEXT COLLATE dialoq_watched PRIMARY KEY
) WITHOUT ROWID;
CREATE TEMP TABLE dialoq_deferred_child (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL REFERENCES dialoq_deferred_parent (name) DEFERRABLE INITIALLY DEFERRED
) WITHOUT ROWID;
INSERT INTO temp.dialoq_deferred_parent (name) VALUES ('parent');
