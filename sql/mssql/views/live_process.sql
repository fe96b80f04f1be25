-- The processes with readers of which a session holds the lock that says they are alive (hold_presence): nobody else
-- could have it alone.
CREATE VIEW dialoq.live_process AS
SELECT p.process
FROM (SELECT m.process FROM dialoq.queue_monitor AS m UNION SELECT a.process FROM dialoq.activated_task AS a) AS p
WHERE APPLOCK_TEST(
    N'dialoq_user', CONCAT(N'dialoq:process:', LOWER(CAST(p.process AS nvarchar(36)))), N'Exclusive', N'Session') = 0;
GO
