/** A server in the process of a test. It grants a capacity to everybody, and answers as it is told. */

import type { TestContext } from "node:test";

import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js";

import { decode, encode, type Message } from "../src/protocol/codec.js";
import {
  DiscoveryRequest,
  DiscoveryResponse,
  GetCapacityRequest,
  GetCapacityResponse,
  ReleaseCapacityRequest,
  ReleaseCapacityResponse,
} from "../src/protocol/messages.js";
import { METHODS } from "../src/transport.js";

type Handler<Q, A> = (request: Q) => A | undefined;

export class Fake {
  address = "";
  /** The capacity of each lease. */
  capacity = 10;
  /** The length of each lease. */
  lengthMs = 60_000;
  /** The refresh interval of each lease, in seconds. */
  refresh = 60n;
  safe: number | undefined;
  /** The resources that are budgets; their period lasts from 3600 to 7200. */
  readonly budgets = new Set<string>();
  /** The number of requests for capacity. */
  asked = 0;
  /** The connections over which requests came. */
  readonly connections = new Set<string>();
  /** The resources that were released, and what was reported as spent of each. */
  readonly released: string[] = [];
  readonly spent: (number | undefined)[] = [];
  /** Answers requests for capacity instead of granting; `undefined` leaves them unanswered. */
  answer: Handler<GetCapacityRequest, GetCapacityResponse> | undefined;
  /** Answers requests for peers; `undefined` leaves them unanswered. */
  peers: Handler<DiscoveryRequest, DiscoveryResponse> = () => ({ isMaster: true, endpoint: [] });
  private readonly server = new Server();

  /** A server on a free port that lives as long as the test. */
  static async start(test: TestContext): Promise<Fake> {
    const fake = new Fake();
    fake.server.addService(
      {
        getCapacity: definition(METHODS.getCapacity, GetCapacityRequest, GetCapacityResponse),
        releaseCapacity: definition(METHODS.releaseCapacity, ReleaseCapacityRequest, ReleaseCapacityResponse),
        discovery: definition(METHODS.discovery, DiscoveryRequest, DiscoveryResponse),
      },
      {
        getCapacity: unary((request: GetCapacityRequest, peer) => {
          fake.connections.add(peer);
          return fake.getCapacity(request);
        }),
        releaseCapacity: unary((request: ReleaseCapacityRequest) => fake.releaseCapacity(request)),
        discovery: unary((request: DiscoveryRequest) => fake.peers(request)),
      },
    );
    const port = await new Promise<number>((resolve, reject) => {
      fake.server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
        if (error === null) resolve(port);
        else reject(error);
      });
    });
    fake.address = `127.0.0.1:${port}`;
    test.after(() => fake.server.forceShutdown());
    return fake;
  }

  /** Leases for everything that is asked for. */
  grant(request: GetCapacityRequest): GetCapacityResponse {
    const gets = {
      expiryTime: 1n,
      refreshInterval: this.refresh,
      capacity: this.capacity,
      token: BigInt(this.asked),
      remainingMs: BigInt(this.lengthMs),
    };
    const response = request.resource.map(({ resourceId = "" }) => {
      const budget = this.budgets.has(resourceId) ? { periodStart: 3_600n, periodEnd: 7_200n } : undefined;
      return { resourceId, gets, safeCapacity: this.safe, budget };
    });
    return { response, problem: [] };
  }

  private getCapacity(request: GetCapacityRequest): GetCapacityResponse | undefined {
    this.asked += 1;
    return this.answer === undefined ? this.grant(request) : this.answer(request);
  }

  private releaseCapacity(request: ReleaseCapacityRequest): ReleaseCapacityResponse {
    this.released.push(...request.resourceId);
    this.spent.push(...request.resourceId.map((_, at) => request.spent?.[at]?.amount));
    return { problem: [] };
  }
}

function definition<Q, A>(path: string, request: Message<Q>, answer: Message<A>) {
  return {
    path,
    requestStream: false,
    responseStream: false,
    requestSerialize: (value: Q) => encode(request, value),
    requestDeserialize: (bytes: Buffer) => decode(request, bytes),
    responseSerialize: (value: A) => encode(answer, value),
    responseDeserialize: (bytes: Buffer) => decode(answer, bytes),
  };
}

function unary<Q, A>(handler: (request: Q, peer: string) => A | undefined) {
  return (call: ServerUnaryCall<Q, A>, respond: sendUnaryData<A>) => {
    const answer = handler(call.request, call.getPeer());
    if (answer !== undefined) respond(null, answer);
  };
}
