-- Settings that belong to no definition. configure: how long closed target endpoints are kept. set_manual_now: tests
-- only, the time that counts instead of the server's; NULL is the server's again.
-- Takes: seconds after an END that the initiator heard of; seconds otherwise, NULL being the LIFETIME; or the time
-- Gives: nothing
-- Errors: none of its own
-- Locks: the broker's row
IF OBJECT_ID(N'dialoq.configure') IS NOT NULL DROP PROCEDURE dialoq.configure
GO
CREATE PROCEDURE dialoq.configure
    @closed_retention_s bigint, @unconfirmed_retention_s bigint = NULL
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE dialoq.broker
    SET closed_retention_s = @closed_retention_s, unconfirmed_retention_s = @unconfirmed_retention_s
    WHERE closed_retention_s <> @closed_retention_s
        OR COALESCE(unconfirmed_retention_s, -1) <> COALESCE(@unconfirmed_retention_s, -1);
END
GO
IF OBJECT_ID(N'dialoq.set_manual_now') IS NOT NULL DROP PROCEDURE dialoq.set_manual_now
GO
CREATE PROCEDURE dialoq.set_manual_now
    @now datetime2(6)
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE dialoq.broker SET manual_now = @now;
END
GO
