-- Messages that a retry policy has taken out of their queue. Names and ids are those of the moment of death: the objects may be gone.
-- The message stays in queue_message, under its endpoint's number with a minus sign, which no endpoint has: so it keeps its place in
-- the order of arrival, an identity value that no statement may give without rights on the table.
CREATE TABLE dialoq.dead_letter (
    queuing_order bigint NOT NULL PRIMARY KEY CLUSTERED,
    endpoint_id bigint NOT NULL,
    delivery_class smallint NOT NULL,
    queue_name nvarchar(256) NOT NULL,
    service_name nvarchar(256) NOT NULL,
    far_service_name nvarchar(512) NOT NULL,
    service_contract_name nvarchar(256) NOT NULL,
    conversation_handle uniqueidentifier NOT NULL,
    conversation_id uniqueidentifier NOT NULL,
    conversation_group_id uniqueidentifier NOT NULL,
    priority int NOT NULL,
    attempts int NOT NULL,
    died_at datetime2(6) NOT NULL,
    reason nvarchar(max) NULL
);
GO
