-- After every batch of the printed installation: once one has failed, nothing after it runs.
IF @@ERROR <> 0 AND @@TRANCOUNT > 0 ROLLBACK TRANSACTION;
IF @@TRANCOUNT = 0 SET NOEXEC ON;
