-- From now to the end of the transaction, locks of conversation groups are the session's.
-- Takes: nothing
-- Gives: nothing
SET LOCAL dialoq.session_locks = '1'
