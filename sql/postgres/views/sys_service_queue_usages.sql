-- sys.service_queue_usages
CREATE VIEW dialoq.sys_service_queue_usages AS
SELECT service_id, queue_id AS service_queue_id
FROM dialoq.service;
