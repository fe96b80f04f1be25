-- sys.services
CREATE VIEW dialoq.sys_services AS
SELECT name, service_id, owner AS principal_id, queue_id AS service_queue_id
FROM dialoq.service;
GO
