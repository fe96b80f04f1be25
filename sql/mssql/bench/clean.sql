-- Writes the changes of earlier rounds to disk, so that no round pays for another. The server removes deleted rows by
-- itself. It is not measured.
-- Takes: nothing
-- Gives: nothing
CHECKPOINT;
