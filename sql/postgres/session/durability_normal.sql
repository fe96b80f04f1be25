-- Answers commits before they are on the disk: the last of them may be lost if the server or its machine crashes.
-- Takes: nothing
-- Gives: nothing
SET synchronous_commit = off;
