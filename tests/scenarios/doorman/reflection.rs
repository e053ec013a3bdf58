//! gRPC reflection.

use prost_reflect::{DescriptorPool, prost_types::FileDescriptorProto};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::harness::{legacy_client, server::Server, wait::block_on};

fn reflect(server: &Server, question: MessageRequest) -> MessageResponse {
    let mut reflection = ServerReflectionClient::new(server.channel());
    block_on(async {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
        // The stream must stay open until the answer is there.
        let (to_server, requests) = tokio::sync::mpsc::channel(1);
        to_server.send(request).await.unwrap();
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        let mut answers = reflection.server_reflection_info(requests).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().expect("an answer");
        answer.message_response.expect("a message in the answer")
    })
}

#[test]
fn reflection_lists_the_services() {
    let server = Server::shared();
    let MessageResponse::ListServicesResponse(list) = reflect(server, MessageRequest::ListServices(String::new()))
    else {
        panic!("expected a list of services");
    };
    let services: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for expected in ["doorman.Capacity", "leaseway.push.v1.Push", "leaseway.status.v1.Status", "grpc.health.v1.Health"]
    {
        assert!(services.contains(&expected), "{expected} is not in {services:?}");
    }
}

#[test]
fn reflection_returns_a_superset_of_the_original_protocol() {
    let server = Server::shared();
    let question = MessageRequest::FileContainingSymbol("doorman.Capacity".into());
    let MessageResponse::FileDescriptorResponse(files) = reflect(server, question) else {
        panic!("expected a file descriptor");
    };
    let mut pool = DescriptorPool::new();
    for file in &files.file_descriptor_proto {
        let file: FileDescriptorProto = prost::Message::decode(file.as_slice()).unwrap();
        pool.add_file_descriptor_proto(file).unwrap();
    }
    let original = legacy_client::pool();
    for theirs in original.all_messages() {
        let ours = pool.get_message_by_name(theirs.full_name()).unwrap_or_else(|| panic!("no {}", theirs.full_name()));
        for field in theirs.fields() {
            let found = ours.get_field(field.number()).unwrap_or_else(|| panic!("no {}", field.full_name()));
            assert_eq!(found.name(), field.name());
            assert_eq!(format!("{:?}", found.kind()), format!("{:?}", field.kind()), "{}", field.full_name());
            assert_eq!(found.cardinality(), field.cardinality(), "{}", field.full_name());
        }
        let added = ours.fields().filter(|field| theirs.get_field(field.number()).is_none());
        assert!(added.into_iter().all(|field| field.number() >= 100 && !field.is_required()), "{}", ours.full_name());
    }
    let service = pool.get_service_by_name("doorman.Capacity").expect("the service");
    let methods: Vec<String> = service.methods().map(|method| method.name().to_owned()).collect();
    assert_eq!(methods, ["Discovery", "GetCapacity", "GetServerCapacity", "ReleaseCapacity"]);
}
