-- The level of synchronous_commit that answers commits before they are on the disk: the last of them may be lost if the server or its
-- machine crashes. A part of session/connect.sql.
-- Takes: nothing
-- Gives: the level
'off'
