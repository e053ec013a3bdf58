//! gRPC calls with raw bytes as messages.

use prost::bytes::{Buf as _, BufMut as _};
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Channel,
};

use super::wait::block_on;

#[derive(Clone)]
pub(crate) struct Raw(Channel);

impl Raw {
    pub(crate) fn over(channel: Channel) -> Raw {
        Raw(channel)
    }

    /// Calls a method of `doorman.Capacity`.
    pub(crate) fn call(&self, method: &str, message: Vec<u8>) -> Result<Vec<u8>, Status> {
        let path = PathAndQuery::try_from(format!("/doorman.Capacity/{method}")).unwrap();
        let mut grpc = Grpc::new(self.0.clone());
        block_on(async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            Ok(grpc.unary(Request::new(message), path, Bytes).await?.into_inner())
        })
    }
}

/// A codec that passes bytes through.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Bytes {
        Bytes
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}
