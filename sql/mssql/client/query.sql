-- Runs the user's query so that it changes nothing, whatever it says.
-- Takes: <query>.
-- Gives: its rows.
BEGIN TRANSACTION; <query>
; IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
