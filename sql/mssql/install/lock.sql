-- Lets one installer in at a time, until the end of its transaction.
-- Takes: nothing
-- Gives: nothing
DECLARE @got int, @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':install');
EXEC @got = sp_getapplock
    @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;
IF @got < 0 THROW 51205, N'the installation was chosen as a deadlock victim: it waited for another installer', 1;
