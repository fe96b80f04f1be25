-- What an error has left of the transaction: 1 it can go on, -1 it can only be rolled back, 0 it is gone.
-- Takes: nothing.
-- Gives: state.
SELECT CAST(XACT_STATE() AS int) AS state;
