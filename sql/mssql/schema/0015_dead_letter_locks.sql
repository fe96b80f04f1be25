-- As in 0002_checks: the table is younger than that list, and the verbs that redrive and purge pass over its rows by READPAST.
IF @@VERSION NOT LIKE N'%Babelfish%'
    EXEC(N'ALTER INDEX ALL ON dialoq.dead_letter SET (ALLOW_PAGE_LOCKS = OFF);
        ALTER TABLE dialoq.dead_letter SET (LOCK_ESCALATION = DISABLE);')
GO
