-- Writes what has been filled in to the disk, where the login may, so that no round pays for it. It is not measured.
-- Takes: nothing
-- Gives: nothing
DO $$
BEGIN
    CHECKPOINT;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;
