-- The processes with readers whose presence lock a session holds (hold_presence): they are alive. APPLOCK_TEST gives 0 if
-- this session could not get the lock.
CREATE VIEW dialoq.live_process AS
SELECT p.process
FROM (SELECT m.process FROM dialoq.queue_monitor AS m UNION SELECT a.process FROM dialoq.activated_task AS a) AS p
WHERE APPLOCK_TEST(
    N'dialoq_user', CONCAT(N'dialoq:process:', LOWER(CAST(p.process AS nvarchar(36)))), N'Exclusive', N'Session') = 0;
GO
