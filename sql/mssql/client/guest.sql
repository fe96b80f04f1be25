-- What a connection of the user's is like before a verb: whether a transaction is open, whether it can go on (1; -1 it can
-- only be rolled back; 0 there is none), and whether the server is Babelfish.
-- Takes: nothing.
-- Gives: transactions, state, is_babelfish.
SELECT
    CAST(@@TRANCOUNT AS int) AS transactions,
    CAST(XACT_STATE() AS int) AS state,
    COALESCE(CAST(SERVERPROPERTY('Babelfish') AS int), 0) AS is_babelfish;
