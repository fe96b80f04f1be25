-- The beginning of a procedure that writes the rows of a process. Only a session that holds the presence of the process
-- (hold_presence) may call it. Only the process itself writes its rows, so a row stays locked for longer than 100 ms only if a
-- session holds it on purpose.
-- Errors: 1222, 60005, 60020
-- <settings>
IF APPLOCK_MODE(N'dialoq_user', CONCAT(N'dialoq:process:', LOWER(CAST(@process AS nvarchar(36)))), N'Session') = N'NoLock'
    THROW 60005, N'this session does not hold the presence of that process; call dialoq.hold_presence first', 1;
SET LOCK_TIMEOUT 100;
