-- The shop of examples/ddl.rs, in Service Broker's own language.
CREATE MESSAGE TYPE [//shop/PlaceOrder] VALIDATION = JSON;
CREATE MESSAGE TYPE [//shop/OrderPlaced] VALIDATION = JSON;
CREATE CONTRACT [//shop/Orders] (
    [//shop/PlaceOrder] SENT BY INITIATOR,
    [//shop/OrderPlaced] SENT BY TARGET
);
GO
CREATE QUEUE orders WITH STATUS = ON, RETENTION = OFF;
CREATE QUEUE checkout;
CREATE SERVICE [//shop/OrderService] ON QUEUE orders ([//shop/Orders]);
CREATE SERVICE [//shop/Checkout] ON QUEUE checkout;
CREATE BROKER PRIORITY premium FOR CONVERSATION
    SET (CONTRACT_NAME = [//shop/Orders], PRIORITY_LEVEL = 9);
